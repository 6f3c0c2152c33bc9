"""One module for each group of commands; `gpu_dev.main` names them and loads one when it is used."""
