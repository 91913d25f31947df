//go:build tinygo

package provisioning

// Boards link neither what scrubs the texts of peers, nor hints for people, of which they would
// keep 2 KB.

func peerText(string) string       { return "" }
func quoted(string, string) string { return "" }
func hint(string) string           { return "" }
