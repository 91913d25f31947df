// Package brokertest has only tests: of our engine and of paho against a broker that is no hub,
// with the same promises for each, over topic maps and over the dialect of a made-up service.
package brokertest
