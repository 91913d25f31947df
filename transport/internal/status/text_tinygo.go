//go:build tinygo

package status

// peerText leaves the service's text out: to find the secrets in it costs more flash than it is
// worth. Status and code say what is wrong.
func peerText(string) string { return "" }
