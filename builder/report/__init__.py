"""Results for readers: heat maps as text, picture and page, sentences, and the grid of virtual cards."""
