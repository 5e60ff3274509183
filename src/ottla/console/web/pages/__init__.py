"""One module for each area of the console; `routes.py` lists them."""
