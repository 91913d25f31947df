package telemetry

import (
	"fmt"
	"slices"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// MaxBatch is how many messages a batch may hold.
const MaxBatch = 500

func cloneMessage(m hubdata.Message) hubdata.Message {
	m.System = slices.Clone(m.System)
	m.Properties = slices.Clone(m.Properties)
	m.Body = slices.Clone(m.Body)
	return m
}

// systemFields maps the names of system properties in the log to the fields that also hold them.
var systemFields = map[string]func(*hubdata.Message) *string{
	"$.mid":     func(m *hubdata.Message) *string { return &m.MessageID },
	"$.cid":     func(m *hubdata.Message) *string { return &m.CorrelationID },
	"$.ct":      func(m *hubdata.Message) *string { return &m.ContentType },
	"$.ce":      func(m *hubdata.Message) *string { return &m.ContentEncoding },
	"$.sub":     func(m *hubdata.Message) *string { return &m.Component },
	"$.ctime":   func(m *hubdata.Message) *string { return &m.CreationTime },
	"$.exp":     func(m *hubdata.Message) *string { return &m.Expiry },
	"$.to":      func(m *hubdata.Message) *string { return &m.To },
	"$.uid":     func(m *hubdata.Message) *string { return &m.UserID },
	"$.schema":  func(m *hubdata.Message) *string { return &m.Schema },
	"$.ifid":    func(m *hubdata.Message) *string { return &m.InterfaceID },
	"$.on":      func(m *hubdata.Message) *string { return &m.Output },
	"$.cdid":    func(m *hubdata.Message) *string { return &m.ConnectionDeviceID },
	"$.cmid":    func(m *hubdata.Message) *string { return &m.ConnectionModuleID },
	"$.diagid":  func(m *hubdata.Message) *string { return &m.DiagnosticID },
	"$.diagctx": func(m *hubdata.Message) *string { return &m.DiagnosticContext },
}

// AddSystem adds a system property to a log entry, under its MQTT name.
func AddSystem(m *hubdata.Message, name, value string) {
	m.System = append(m.System, hubdata.Property{Name: name, Value: value})
	if field := systemFields[name]; field != nil {
		*field(m) = value
	}
}

func SenderOf(m *hubdata.Message) identity.Identity {
	return identity.Identity{Device: m.DeviceID, Module: m.ModuleID}
}

// CheckID returns an error for a message id that is too long.
func CheckID(id string) error {
	if n := len(id); n > hubdata.MaxMessageID {
		return fmt.Errorf("message id of %d characters, at most %d are allowed", n, hubdata.MaxMessageID)
	}
	return nil
}

// SizeOf returns the size of a message as the service's limit counts it.
func SizeOf(m *hubdata.Message) int {
	n := len(m.Body)
	for _, p := range m.System {
		n += len(p.Value)
	}
	for _, p := range m.Properties {
		n += len(p.Name) + len(p.Value)
	}
	return n
}
