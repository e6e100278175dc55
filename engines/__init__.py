"""The bundle format and the engines that run a bundle; imports no other package of the project."""
