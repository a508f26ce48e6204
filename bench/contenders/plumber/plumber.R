# An API as plumber's users write them, for what serves such a folder with several Rs.

#* @serializer text
#* @get /
function() "Hello, World!"
