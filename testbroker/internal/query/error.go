package query

import "fmt"

// An Error says why a text is not a query.
type Error struct {
	Position int    // in characters, from 1
	Text     string // what is wrong, and the fix
}

// Error returns the position and the text.
func (e *Error) Error() string { return fmt.Sprintf("query, at position %d: %s", e.Position, e.Text) }
