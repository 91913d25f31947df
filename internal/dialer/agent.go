package dialer

import "runtime"

// Agent returns the client name that the hub sees, including the caller's product info.
func Agent(productInfo string) string {
	agent := "Hubline (" + runtime.Version() + "; " + runtime.GOOS + "; " + runtime.GOARCH + ")"
	if productInfo != "" {
		agent += " " + productInfo
	}
	return agent
}
