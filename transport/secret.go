package transport

// Secret holds a text that must not be printed. It is a function, so package fmt, whatever the verb
// and however deep in unexported fields it stands, and encoders show no more than an address. The
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

// String hides the text.
func (s Secret) String() string {
	if s == nil {
		return ""
	}
	return "(hidden)"
}

// GoString is String.
func (s Secret) GoString() string { return s.String() }

// MarshalText is String, for encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
