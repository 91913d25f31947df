package hubdata

// Device is a registry entry: a device, or a module of a device. It holds secrets: String and the
// %v verbs of package fmt omit the keys.
type Device struct {
	// HostName is the name of the hub.
	HostName string
	// GatewayHostName is the name of the gateway to which the client connects; empty for the hub
	// itself.
	GatewayHostName string
	// ID is the device id.
	ID string
	// ModuleID is empty for the device itself.
	ModuleID string
	// GenerationID distinguishes the entry from others of the same name, before and after it. An edge
	// runtime passes it to the module. It is no secret.
	GenerationID string
	// PrimaryKey and SecondaryKey are 32 bytes each, in base64. Either signs valid tokens. They are
	// empty for a device that uses a certificate.
	PrimaryKey, SecondaryKey string
	// Disabled is whether the device, or the device of the module, is forbidden to connect.
	Disabled bool
}

// ConnectionString returns the connection string of a client, with the primary key.
func (d Device) ConnectionString() string {
	s := "HostName=" + d.HostName + ";DeviceId=" + d.ID
	if d.ModuleID != "" {
		s += ";ModuleId=" + d.ModuleID
	}
	if d.GatewayHostName != "" {
		s += ";GatewayHostName=" + d.GatewayHostName
	}
	if d.PrimaryKey == "" {
		return s + ";x509=true"
	}
	return s + ";SharedAccessKey=" + d.PrimaryKey
}

// String returns the device's name without its keys.
func (d Device) String() string {
	name := d.ID
	if d.ModuleID != "" {
		name += "/" + d.ModuleID
	}
	return name + " at " + d.HostName
}

// GoString is String.
func (d Device) GoString() string { return d.String() }

// Right is a set of rights of an access policy.
type Right uint8

// The rights.
const (
	// RightRegistryRead reads the registry, and RightRegistryWrite changes it as well.
	RightRegistryRead Right = 1 << iota
	RightRegistryWrite
	// RightServiceConnect is the right of back ends: twins, methods, C2D messages.
	RightServiceConnect
	// RightDeviceConnect connects any device.
	RightDeviceConnect
	// RightAll are the rights of the service's policy "iothubowner".
	RightAll = RightRegistryRead | RightRegistryWrite | RightServiceConnect | RightDeviceConnect
)

// Policy is an access policy of the hub. Its keys sign tokens that have the policy's name in the
// field skn.
type Policy struct {
	// HostName is the name of the hub.
	HostName string
	// Name is the value of skn in tokens.
	Name string
	// PrimaryKey and SecondaryKey are 32 bytes each, in base64.
	PrimaryKey, SecondaryKey string
}

// ConnectionString returns the connection string of a back end, with the primary key.
func (p Policy) ConnectionString() string {
	return "HostName=" + p.HostName + ";SharedAccessKeyName=" + p.Name + ";SharedAccessKey=" + p.PrimaryKey
}

// String returns the policy's name without its keys.
func (p Policy) String() string { return "policy " + p.Name }

// GoString is String.
func (p Policy) GoString() string { return p.String() }
