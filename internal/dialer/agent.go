package dialer

import "runtime"

// Agent is the name of the client that the hub sees, with the caller's product info.
func Agent(productInfo string) string {
	agent := "Hubline (" + runtime.Version() + "; " + runtime.GOOS + "; " + runtime.GOARCH + ")"
	if productInfo != "" {
		agent += " " + productInfo
	}
	return agent
}
