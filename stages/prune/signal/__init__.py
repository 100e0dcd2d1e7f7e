"""A network and its channels -> what they are worth (saliences, masks, P_TSK) and what each layer needs of them."""
