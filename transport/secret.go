package transport

// Secret holds a text that must not be printed. It is a function, so package fmt prints only an
// address, with any verb and also in nested unexported fields. The same holds for encoders. The
// zero Secret is an empty text.
type Secret func() string

// Hide returns text as a Secret.
func Hide(text string) Secret {
	if text == "" {
		return nil
	}
	return func() string { return text }
}

// Reveal returns the text.
func (s Secret) Reveal() string {
	if s == nil {
		return ""
	}
	return s()
}

// String returns a placeholder for the text.
func (s Secret) String() string {
	if s == nil {
		return ""
	}
	return "(hidden)"
}

// GoString returns String.
func (s Secret) GoString() string { return s.String() }

// MarshalText returns String, for encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
