package netproxy

// For the tests, which are in a package of their own: they use transports, and those use this
// package.
var (
	ParseHead   = parseHead
	StatusTexts = statusTexts
)
