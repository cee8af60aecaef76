"""Reports: heat maps as text, picture and page, sentences, the atlas, and the grid of virtual cards."""
