package twin

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/hubline-iot/hubline/internal/fields"
	"github.com/hubline-iot/hubline/internal/scrub"
)

// MethodError is an answer with a status and a text for the caller.
type MethodError struct {
	// Status is from 100 to 599; another one counts as 500.
	Status  int
	Message string
}

// Error returns the status and the message.
func (e *MethodError) Error() string { return fmt.Sprintf("status %d: %s", e.Status, e.Message) }

// MethodErrorf returns a MethodError. A handler that returns it answers with this status and text.
func MethodErrorf(status int, format string, args ...any) error {
	return &MethodError{status, fmt.Sprintf(format, args...)}
}

// failure is the body of an answer that is no success.
type failure struct {
	Message string `json:"message"`
	Field   string `json:"field,omitempty"`
}

// errorAnswer returns the answer for an error whose text is for the caller: a MethodError or
// FieldErrors.
func errorAnswer(err error) (status int, body []byte) {
	status, f := 400, failure{Message: scrub.Peer(err.Error())}
	if known := (*MethodError)(nil); errors.As(err, &known) {
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
