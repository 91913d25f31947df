package testbroker

import (
	"github.com/hubline-iot/hubline/testbroker/internal/dps"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// Errors of calls, and causes of a connection's end or of a refusal in events.
var (
	// ErrNotFound is returned for an unknown device or module.
	ErrNotFound = hub.ErrNotFound
	// ErrExists is returned when a device, module or policy is added a second time.
	ErrExists = hub.ErrExists
	// ErrClosed is returned by calls on a closed hub.
	ErrClosed = hub.ErrClosed
	// ErrDropped is the cause of a connection's end when [Hub.Drop] ended it.
	ErrDropped = hub.ErrDropped
	// ErrReset is the cause of a connection's end when [Hub.Reset] ended it.
	ErrReset = hub.ErrReset
	// ErrReplaced is the cause of a connection's end when a newer one of the same identity replaced
	// it.
	ErrReplaced = hub.ErrReplaced
	// ErrDisabled is the cause of refusing a disabled device, and of ending its connection.
	ErrDisabled = hub.ErrDisabled
	// ErrRemoved is the cause of a connection's end when [Hub.RemoveDevice] removed the device.
	ErrRemoved = hub.ErrRemoved
	// ErrTokenExpired is the cause of a connection's end when its token expired.
	ErrTokenExpired = hub.ErrTokenExpired
	// ErrDisconnect is the cause of a connection's end when the client sent DISCONNECT.
	ErrDisconnect = hub.ErrDisconnect
	// ErrQueueFull is returned by [Hub.SendC2D] while the device's queue of C2D messages is full.
	ErrQueueFull = hub.ErrQueueFull
	// ErrQuota is the cause of a connection's end, or of a refusal, when the daily message quota is
	// exhausted.
	ErrQuota = faults.ErrQuota
	// ErrSlowReader is the cause of a connection's end when its client did not read the hub's data.
	ErrSlowReader = hub.ErrSlowReader
	// ErrNotEnrolled is returned by a [DPS] for an unknown enrollment or registration.
	ErrNotEnrolled = dps.ErrNotEnrolled
	// ErrEnrolled is returned by [DPS.Enroll] when an id is enrolled a second time.
	ErrEnrolled = dps.ErrEnrolled
)
