"""A manifest (URL, sha256, licence) -> a verified folder on this disk: download, npm, unpack, where it is kept."""
