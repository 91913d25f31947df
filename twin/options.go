package twin

import (
	"context"

	"github.com/hubline-iot/hubline/device"
)

// Client is the part of *device.Client that Bind and NewReporter use.
type Client interface {
	HandleDesired(handle device.DesiredHandler) error
	GetTwin(ctx context.Context) (*device.Twin, error)
	PatchReported(ctx context.Context, patch []byte) (version int64, err error)
}

// Options are the settings of a Binding.
type Options[T any] struct {
	// Default has the values of properties that no back end desires. It must pass Check.
	Default T
	// Start is in force until the first delivery of desired properties, for example from a file. It
	// must pass Check. Nil: Default.
	Start *T
	// Check returns an error if a value must not be in force; it may be called several times for one
	// change. FieldErrors refuse the named properties. Another error refuses all that changed.
	// Nil: every value that can be decoded is valid.
	Check func(T) error
	// Apply puts a change in force. An error refuses properties as Check's does, but none takes
	// effect. The value that Binding.Value returns changes after it. It is called only when a value
	// changes. Nil: nothing to do.
	Apply func(ctx context.Context, c Change[T]) error
	// OnError is called for problems that no caller sees: a refused or unknown property (*FieldError),
	// desired properties that cannot be read, an answer that failed and is sent again. Calls may be
	// concurrent. Nil: they are ignored.
	OnError func(err error)
}

// Change is a change of the values in force.
type Change[T any] struct {
	Old, New T
	// Fields are the names of the properties that differ, in the order of the struct.
	Fields []string
	// Version is that of the desired properties.
	Version int64
}
