package methods

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/hubline-iot/hubline/internal/fields"
	"github.com/hubline-iot/hubline/internal/scrub"
)

// FieldError is a value that a field of the payload does not take. Field is the name in JSON, or a
// path: "window.from". A handler that returns one, or several in errors.Join, answers with 400.
type FieldError = fields.Error

// Error is an answer with a status and a text for the caller.
type Error struct {
	// Status is from 100 to 599; another one counts as 500.
	Status  int
	Message string
}

// Error returns the status and the message.
func (e *Error) Error() string { return fmt.Sprintf("status %d: %s", e.Status, e.Message) }

// Errorf returns an Error. A handler that returns it answers with this status and text.
func Errorf(status int, format string, args ...any) error {
	return &Error{status, fmt.Sprintf(format, args...)}
}

// failure is the body of an answer that is no success.
type failure struct {
	Message string `json:"message"`
	Field   string `json:"field,omitempty"`
}

// answer returns the answer for an error whose text is for the caller: an Error or FieldErrors.
func answer(err error) (status int, body []byte) {
	status, f := 400, failure{Message: scrub.Peer(err.Error())}
	if known := (*Error)(nil); errors.As(err, &known) {
		status, f.Message = known.Status, scrub.Peer(known.Message)
		if status < 100 || status > 599 {
			status = 500
		}
	} else if named := fields.Named(err); len(named) > 0 {
		f.Field = scrub.Peer(named[0].Field) // it may be a name that the caller chose
		if len(named) > 1 {
			f.Message = scrub.Peer(inOneLine(named))
		}
	}
	body, _ = json.Marshal(f) // two strings
	return status, body
}

func inOneLine(named []*FieldError) string {
	var texts []string
	for _, one := range named {
		texts = append(texts, one.Error())
	}
	return strings.Join(texts, "; ")
}
