package operr

import "github.com/hubline-iot/hubline/transport"

// Violation returns an error with this text for a peer that broke the protocol on a connection that
// had worked.
func Violation(text string) error { return &violation{text} }

type violation struct{ text string }

func (v *violation) Error() string { return v.text }

// Unwrap returns transport.ErrViolation.
func (v *violation) Unwrap() error { return transport.ErrViolation }
