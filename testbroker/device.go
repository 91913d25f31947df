package testbroker

import (
	"crypto/x509"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// AddDevice registers a device, enabled, with new keys. The id has 1 to 128 characters: ASCII
// letters, digits and any of -.+%_#*?!(),:=@$'. It fails with [ErrExists] for an id that is
// registered, and for an invalid id.
func (h *Hub) AddDevice(id string) (hubdata.Device, error) { return h.hub.AddDevice(id) }

// AddModule registers a module of a registered device. A module has its own keys and connections,
// but not its own status. Other methods name it "deviceID/moduleID". It fails with [ErrNotFound]
// for an unknown device, with [ErrExists] for a registered module, and for an invalid id.
func (h *Hub) AddModule(deviceID, moduleID string) (hubdata.Device, error) {
	return h.hub.AddModule(deviceID, moduleID)
}

// Device returns the entry of a device, or of a module named "deviceID/moduleID". It fails with
// [ErrNotFound] for an unknown name.
func (h *Hub) Device(id string) (hubdata.Device, error) { return h.hub.Device(id) }

// ConnectionString returns the connection string of a device, or of a module named
// "deviceID/moduleID". It is empty for an unknown name.
func (h *Hub) ConnectionString(id string) string { return h.hub.ConnectionString(id) }

// SetKeys replaces both keys, base64 of 16 to 64 bytes, of a device or of a module named
// "deviceID/moduleID". Tokens signed with the old keys open no new connection; the present
// connection stays open. It fails with [ErrNotFound] for an unknown name, for an invalid key, and
// for an identity with a certificate.
func (h *Hub) SetKeys(id, primary, secondary string) error {
	return h.hub.SetKeys(id, primary, secondary)
}

// SetEnabled enables or disables a device together with its modules. Disabling closes their
// connections. It fails with [ErrNotFound] for an unknown device.
func (h *Hub) SetEnabled(deviceID string, on bool) error { return h.hub.SetEnabled(deviceID, on) }

// RemoveDevice removes a device with its modules, or one module named "deviceID/moduleID", from the
// registry and closes the connections. A device added again with the same id has other keys. It
// fails with [ErrNotFound] for an unknown name.
func (h *Hub) RemoveDevice(id string) error { return h.hub.RemoveDevice(id) }

// AddPolicy makes an access policy with the given rights. Without rights it gets
// [hubdata.RightDeviceConnect], with which any device can connect. A new hub has no policies.
// It fails with [ErrExists] for a name that is taken, and for an empty name.
func (h *Hub) AddPolicy(name string, rights ...hubdata.Right) (hubdata.Policy, error) {
	return h.hub.AddPolicy(name, rights...)
}

// Policy returns an access policy. It fails with [ErrNotFound] for an unknown name.
func (h *Hub) Policy(name string) (hubdata.Policy, error) { return h.hub.Policy(name) }

// AddDeviceX509 registers a device, or a module "deviceID/moduleID" of a registered device, that
// authenticates with a certificate. Its thumbprints, a primary and an optional secondary one, are
// the SHA-1 or SHA-256 of the certificate in hexadecimal, with or without colons. See [Thumbprint].
// It has no keys. Errors are those of [Hub.AddDevice] and [Hub.AddModule], and one for a malformed
// thumbprint.
func (h *Hub) AddDeviceX509(id string, thumbprints ...string) (hubdata.Device, error) {
	return h.hub.AddDeviceX509(id, thumbprints...)
}

// AddDeviceCA registers a device, or a module "deviceID/moduleID" of a registered device, that
// authenticates with a certificate. The certificate's common name is the id, and its chain leads to
// a certificate passed to [Hub.AddCA]. It has no keys. Errors are those of [Hub.AddDevice] and
// [Hub.AddModule].
func (h *Hub) AddDeviceCA(id string) (hubdata.Device, error) { return h.hub.AddDeviceCA(id) }

// AddCA adds the certificate of an authority. The hub then accepts device certificates signed by
// it. It fails for a certificate that is not an authority's.
func (h *Hub) AddCA(cert *x509.Certificate) error { return h.hub.AddCA(cert) }

// Thumbprint returns the SHA-256 thumbprint of a certificate, in hexadecimal.
func Thumbprint(cert *x509.Certificate) string { return hub.Thumbprint(cert) }

// ThumbprintSHA1 returns the SHA-1 thumbprint of a certificate, in hexadecimal.
func ThumbprintSHA1(cert *x509.Certificate) string { return hub.ThumbprintSHA1(cert) }
