// The functions that are linked by name have no body here.
