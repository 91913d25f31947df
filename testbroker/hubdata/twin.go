package hubdata

import (
	"encoding/json"
	"fmt"
	"time"
)

// Twin is a copy of the twin of a device or module.
type Twin struct {
	// DeviceID and ModuleID name the twin's owner. ModuleID is empty for the device itself.
	DeviceID, ModuleID string
	// Desired, Reported and Tags are JSON objects with sorted names, without "$version" and
	// "$metadata".
	Desired, Reported, Tags json.RawMessage
	// DesiredMetadata and ReportedMetadata are JSON objects with the time of each member's last change
	// as "$lastUpdated" at every level. The metadata of desired properties has "$lastUpdatedVersion"
	// too. Devices do not see metadata.
	DesiredMetadata, ReportedMetadata json.RawMessage
	// DesiredVersion and ReportedVersion start at 1 and grow by one with each change.
	DesiredVersion, ReportedVersion int64
	// Version grows with each change of any part. ETag changes when a back end changes the desired
	// properties or the tags.
	Version int64
	ETag    string
	// ModelID is the Plug and Play model that the client announced last, when it connected over MQTT
	// or attached a link over AMQP; empty if it announced none.
	ModelID string
}

// TwinChange is a back end's change of a twin.
type TwinChange struct {
	// Desired and Tags are JSON objects. They are merged into their part of the twin, where null
	// removes a member. An empty text leaves the part unchanged.
	Desired, Tags string
	// Replace replaces the parts instead of merging into them.
	Replace bool
	// ETag is the ETag that the twin must have; empty or "*" means any.
	ETag string
}

// TwinOperation is the operation of a twin request.
type TwinOperation uint8

// The operations.
const (
	// TwinAny means all operations.
	TwinAny TwinOperation = iota
	// TwinGet reads the twin.
	TwinGet
	// TwinPatch changes the reported properties.
	TwinPatch
	// TwinSubscribe and TwinUnsubscribe begin and end notifications of desired properties. Only AMQP
	// has them; MQTT uses an ordinary subscription.
	TwinSubscribe
	TwinUnsubscribe
)

var twinOperationNames = [...]string{TwinAny: "any", TwinGet: "get", TwinPatch: "patch", TwinSubscribe: "subscribe",
	TwinUnsubscribe: "unsubscribe"}

// String returns the operation in lower case.
func (o TwinOperation) String() string {
	if int(o) < len(twinOperationNames) {
		return twinOperationNames[o]
	}
	return fmt.Sprintf("TwinOperation(%d)", uint8(o))
}

// TwinRequest is a client's twin request with the hub's answer.
type TwinRequest struct {
	// DeviceID and ModuleID name the client. ModuleID is empty for the device itself.
	DeviceID, ModuleID string
	Operation          TwinOperation
	// RequestID is the client's id of the request, as text.
	RequestID string
	// Base is the version on which a patch is based; zero when the request has none.
	Base int64
	// Body is the request's body.
	Body []byte
	// Status is the status of the answer, and Version the version after a patch. Status is zero when a
	// fault ended the connection before the hub handled the request.
	Status  int
	Version int64
	// Answers is how many answers were put on the connection; zero for a client that has not
	// subscribed to answers.
	Answers int
	// Protocol and Connection are those by which it arrived. Received is when, by the hub's clock.
	Protocol   Protocol
	Connection uint64
	Received   time.Time
}
