// Package host has what package update/agent needs from a computer with standard Go: files over
// HTTP, and a state in a file.
//
//	options := agent.Options{Fetch: host.NewFetcher(nil), Store: host.NewStore("/var/lib/device/updates")}
//
// Boards implement agent.Fetcher and agent.Store on their own network and flash.
package host
