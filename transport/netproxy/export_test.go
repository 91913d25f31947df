package netproxy

// For tests in package netproxy_test, which cannot be internal: they import transports, which
// import this package.
var (
	ParseHead   = parseHead
	StatusTexts = statusTexts
)
