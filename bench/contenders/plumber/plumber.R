# An API as users of plumber write it, for contenders that serve such a folder with several R
# processes.

#* @serializer text
#* @get /
function() "Hello, World!"
