package main

import "fmt"

// A misuse is a value of a flag that only the hub knows to be wrong. The program ends with the
// status of a wrong command line.
type misuse struct{ error }

func (m misuse) Unwrap() error { return m.error }

func misused(format string, args ...any) error { return misuse{fmt.Errorf(format, args...)} }
