# An API as users of plumber write it, for contenders that serve such a folder with several
# processes of R.

#* @serializer text
#* @get /
function() "Hello, World!"
