package amqpwire

import "fmt"

// Conditions of errors [AMQP 1.0, 2.8.15 to 2.8.18].
const (
	InternalError         Symbol = "amqp:internal-error"
	NotFound              Symbol = "amqp:not-found"
	UnauthorizedAccess    Symbol = "amqp:unauthorized-access"
	DecodeError           Symbol = "amqp:decode-error"
	ResourceLimitExceeded Symbol = "amqp:resource-limit-exceeded"
	NotAllowed            Symbol = "amqp:not-allowed"
	InvalidField          Symbol = "amqp:invalid-field"
	NotImplemented        Symbol = "amqp:not-implemented"
	PreconditionFailed    Symbol = "amqp:precondition-failed"
	IllegalState          Symbol = "amqp:illegal-state"

	ConnectionForced Symbol = "amqp:connection:forced"
	FramingError     Symbol = "amqp:connection:framing-error"

	WindowViolation  Symbol = "amqp:session:window-violation"
	ErrantLink       Symbol = "amqp:session:errant-link"
	HandleInUse      Symbol = "amqp:session:handle-in-use"
	UnattachedHandle Symbol = "amqp:session:unattached-handle"

	DetachForced          Symbol = "amqp:link:detach-forced"
	TransferLimitExceeded Symbol = "amqp:link:transfer-limit-exceeded"
	MessageSizeExceeded   Symbol = "amqp:link:message-size-exceeded"
	LinkRedirect          Symbol = "amqp:link:redirect"
	LinkStolen            Symbol = "amqp:link:stolen"
)

// Error is the error of AMQP, and an error of Go.
type Error struct {
	Condition   Symbol
	Description string
	Info        Map
}

// Errorf returns an error with a condition.
func Errorf(condition Symbol, format string, args ...any) *Error {
	return &Error{Condition: condition, Description: fmt.Sprintf(format, args...)}
}

// Error returns the condition and the description.
func (e *Error) Error() string {
	if e.Description == "" {
		return string(e.Condition)
	}
	return string(e.Condition) + ": " + e.Description
}

func malformed(format string, args ...any) *Error { return Errorf(DecodeError, format, args...) }
