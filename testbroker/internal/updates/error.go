package updates

import (
	"fmt"

	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// Numbers of refusals that share the code of others.
const (
	numberNotJSON    = 400003
	numberIncomplete = 400012 // a report with incomplete results of steps
)

// An Error is a refusal of a request.
type Error struct {
	Code   updatedata.Code
	Number int    // the status and three digits
	Target string // the member of the request that is wrong
	Text   string
}

// Error returns the code and the text.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Code, e.Text) }

func refusef(code updatedata.Code, target, format string, args ...any) *Error {
	return &Error{code, code.Number(), target, fmt.Sprintf(format, args...)}
}

// numbered returns the refusal with another number.
func (e *Error) numbered(n int) *Error {
	e.Number = n
	return e
}
