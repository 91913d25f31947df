package testbroker

import (
	"crypto/tls"
	"crypto/x509"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

var (
	// ErrNotFound is returned for a device or module that the hub does not know.
	ErrNotFound = hub.ErrNotFound
	// ErrExists is returned when a device, module or policy is added a second time.
	ErrExists = hub.ErrExists
)

// Device is an entry of the hub's registry: a device, or a module of one. It holds secrets: String
// and the %v verbs of package fmt leave the keys out.
type Device = hub.Device

// AddDevice registers a device, enabled, with new keys. The id has 1 to 128 characters: ASCII
// letters, digits and
// - . + % _ # * ? ! ( ) , : = @ $ '.
func (h *Hub) AddDevice(id string) (Device, error) { return h.hub.AddDevice(id) }

// AddModule registers a module of a device that exists. Modules have own keys and own connections,
// but no own status. Other methods name it "deviceID/moduleID".
func (h *Hub) AddModule(deviceID, moduleID string) (Device, error) {
	return h.hub.AddModule(deviceID, moduleID)
}

// Device returns the entry of a device, or of a module named "deviceID/moduleID".
func (h *Hub) Device(id string) (Device, error) { return h.hub.Device(id) }

// ConnectionString returns the connection string of a device, or of a module named
// "deviceID/moduleID". It is empty when there is none of that name.
func (h *Hub) ConnectionString(id string) string { return h.hub.ConnectionString(id) }

// SetKeys replaces both keys, base64 of 16 to 64 bytes, of a device or of a module named
// "deviceID/moduleID". Tokens signed with the old ones open no new connection; the present one
// lives on.
func (h *Hub) SetKeys(id, primary, secondary string) error {
	return h.hub.SetKeys(id, primary, secondary)
}

// SetEnabled allows or forbids a device to connect, together with its modules. Forbidding closes
// their connections.
func (h *Hub) SetEnabled(deviceID string, on bool) error { return h.hub.SetEnabled(deviceID, on) }

// RemoveDevice takes a device with its modules, or one module named "deviceID/moduleID", out of the
// registry and closes the connections. A device added again under the same id has other keys.
func (h *Hub) RemoveDevice(id string) error { return h.hub.RemoveDevice(id) }

// Right is a set of the rights of an access policy.
type Right = hub.Right

// The rights.
const (
	// RegistryRead reads the registry, and RegistryWrite changes it as well.
	RegistryRead  = hub.RegistryRead
	RegistryWrite = hub.RegistryWrite
	// ServiceConnect is that of back ends: twins, methods, C2D messages.
	ServiceConnect = hub.ServiceConnect
	// DeviceConnect connects any device.
	DeviceConnect = hub.DeviceConnect
	// AllRights are those of the service's policy "iothubowner".
	AllRights = hub.AllRights
)

// Policy is an access policy of the hub. Its keys sign tokens with the policy's name in the field
// skn.
type Policy = hub.Policy

// AddPolicy makes an access policy with the given rights; none means [DeviceConnect], under which
// any device can be connected. A new hub has no policies.
func (h *Hub) AddPolicy(name string, rights ...Right) (Policy, error) {
	return h.hub.AddPolicy(name, rights...)
}

// AddDeviceX509 registers a device, or a module "deviceID/moduleID" of one that exists, that proves
// who it is by a certificate with one of the thumbprints, the primary and the secondary one: SHA-1
// or SHA-256 of the certificate, in hexadecimal, with or without colons. See [Thumbprint]. It has
// no keys.
func (h *Hub) AddDeviceX509(id string, thumbprints ...string) (Device, error) {
	return h.hub.AddDeviceX509(id, thumbprints...)
}

// AddDeviceCA registers a device, or a module "deviceID/moduleID" of one that exists, that proves
// who it is by a certificate whose common name is its id and whose chain leads to a certificate
// given to [Hub.AddCA]. It has no keys.
func (h *Hub) AddDeviceCA(id string) (Device, error) { return h.hub.AddDeviceCA(id) }

// AddCA uploads a certificate of an authority whose signature the hub accepts on certificates of
// devices.
func (h *Hub) AddCA(cert *x509.Certificate) error { return h.hub.AddCA(cert) }

// Thumbprint returns the SHA-256 thumbprint of a certificate, in hexadecimal.
func Thumbprint(cert *x509.Certificate) string { return hub.Thumbprint(cert) }

// ThumbprintSHA1 returns the SHA-1 thumbprint of a certificate, in hexadecimal.
func ThumbprintSHA1(cert *x509.Certificate) string { return hub.ThumbprintSHA1(cert) }

// CertAuthority signs certificates of devices. Make it with [NewCertAuthority]; give its
// certificate to [Hub.AddCA].
type CertAuthority = hub.CertAuthority

// NewCertAuthority makes an authority that signs for itself.
func NewCertAuthority(name string) *CertAuthority { return hub.NewCertAuthority(name) }

// NewClientCert makes a certificate for a device that is signed with its own key. The zero times
// mean: from an hour ago, for twenty years.
func NewClientCert(commonName string, notBefore, notAfter time.Time) tls.Certificate {
	return hub.NewClientCert(commonName, notBefore, notAfter)
}
