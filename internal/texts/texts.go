// Package texts has functions for texts that package strings has not, or that cost a board less:
// ASCII without Unicode's tables, which are 12 KB of flash, percent-encoding, a hash, and what
// people mistype or paste into a configuration.
package texts
