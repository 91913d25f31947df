// Package event has the events that a hub of package testbroker reports to Options.OnEvent.
package event
