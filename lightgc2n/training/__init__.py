"""One plain loop for every model of the zoo, and the folder in which a run is kept."""
