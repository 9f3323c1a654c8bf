"""One file a method: file name = function name = registry key."""
