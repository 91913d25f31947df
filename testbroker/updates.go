package testbroker

import (
	"context"
	"crypto/rsa"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/updates"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

var (
	// ErrUpdateNotFound is returned for an update, a deployment or a key that is not there.
	ErrUpdateNotFound = updates.ErrNotFound
	// ErrUpdateExists is returned when an update or a deployment is added a second time.
	ErrUpdateExists = updates.ErrExists
	// ErrUpdateInUse is returned when an update is removed to which another one refers.
	ErrUpdateInUse = updates.ErrInUse
)

// UpdatesOptions are the settings of an update service. The zero value of each field means its
// default.
type UpdatesOptions struct {
	// Now is the clock of the service: see [Options.Now]. Default: [time.Now].
	Now func() time.Time
	// Seed, unless zero, makes the keys repeatable. Default: all services of a process have the same
	// keys.
	Seed uint64
	// FileURL is the beginning of the URLs of files and root keys, such as "https://127.0.0.1:8443".
	// Default: "https://" and the name of the service that it is linked to first.
	FileURL string
	// BytesPerSecond, if positive, limits each download. Default: no limit.
	BytesPerSecond int
	// Store, unless nil, keeps the state of the service between runs: keys, updates, deployments and
	// devices. Then the service must be closed. See [Store].
	Store Store
}

// Updates is an update service: updates with their files, deployments, and the keys that sign them.
// Make it with [NewUpdates] and link it by [DPS.LinkUpdates] or [Hub.LinkUpdates].
type Updates struct{ s *updates.Service }

// NewUpdates makes an update service without updates. Nil options mean all defaults.
func NewUpdates(o *UpdatesOptions) (*Updates, error) {
	if o == nil {
		o = &UpdatesOptions{}
	}
	s, err := updates.New(updates.Options(*o))
	if err != nil {
		return nil, err
	}
	return &Updates{s}, nil
}

// Close saves the state of a service with a store. Without one it does nothing.
func (u *Updates) Close() { u.s.Close() }

// Reset forgets all deployments and devices. Updates and keys stay.
func (u *Updates) Reset() { u.s.Reset() }

// SetFileURL replaces [UpdatesOptions.FileURL], for offers from then on.
func (u *Updates) SetFileURL(base string) { u.s.SetFileURL(base) }

// Publish adds an update. One with the same id must be removed before.
func (u *Updates) Publish(update updatedata.Update) error { return u.s.Publish(update) }

// Remove removes an update with its files and deployments. It fails with [ErrUpdateInUse] while
// another update refers to it.
func (u *Updates) Remove(id updatedata.UpdateID) error { return u.s.Remove(id) }

// Updates returns the published updates, sorted by id.
func (u *Updates) Updates() []updatedata.Update { return u.s.Updates() }

// Deploy offers an update to devices, and returns the deployment with its workflow id. The newest
// deployment for a device replaces earlier ones, even when the device has finished it.
func (u *Updates) Deploy(d updatedata.Deployment) (updatedata.Deployment, error) {
	return u.s.Deploy(d)
}

// Withdraw ends a deployment: no device is offered it any more. Reports are still accepted.
func (u *Updates) Withdraw(workflowID string) error { return u.s.Withdraw(workflowID) }

// Retry makes the devices of hubs at which a deployment failed or was cancelled try again. The
// retry has a record of its own: [updatedata.Device.Last]. A provisioning service has no retries.
func (u *Updates) Retry(workflowID string) error { return u.s.Retry(workflowID) }

// Deployments returns the deployments that are not withdrawn, the oldest first.
func (u *Updates) Deployments() []updatedata.Deployment { return u.s.Deployments() }

// Device returns what the service knows of a device. An unknown device has no workflows.
func (u *Updates) Device(id string) updatedata.Device { return u.s.Device(id) }

// Devices returns all devices that the service knows, sorted by id.
func (u *Updates) Devices() []updatedata.Device { return u.s.Devices() }

// Wait waits until ok returns true. It calls ok at once, and again after each check and report of a
// device, and each change of updates, deployments and keys. ok may call methods of the service.
// Wait fails when the context ends.
func (u *Updates) Wait(ctx context.Context, ok func() bool) error { return u.s.Wait(ctx, ok) }

// Roots returns the public keys that devices have from their factory, by key id: the first two
// roots, RSA with 3072 bits.
func (u *Updates) Roots() map[string]*rsa.PublicKey { return u.s.Roots() }

// Keys returns the keys of the service, roots first, each kind by age.
func (u *Updates) Keys() []updatedata.Key { return u.s.Keys() }

// RootKeyPackage returns the root key package that devices download. Its version grows with each
// change of the keys.
func (u *Updates) RootKeyPackage() []byte { return u.s.RootKeys(nil).Content }

// Sign returns the signature of a manifest, by the present keys.
func (u *Updates) Sign(manifest []byte) string { return u.s.Sign(manifest) }

// RotateSigningKey makes the service sign with a new key. The old one stays valid.
func (u *Updates) RotateSigningKey() { u.s.RotateSigningKey() }

// RevokeSigningKey disables the key with which the service signs, and makes it sign with a new one.
func (u *Updates) RevokeSigningKey() { u.s.RevokeSigningKey() }

// RotateRoot adds a root key, with which the service signs from then on. Devices learn of it from
// the root key package.
func (u *Updates) RotateRoot() { u.s.RotateRoot() }

// DisableRoot disables a root key by its id. If it is the one that signs, the newest other root
// signs instead.
func (u *Updates) DisableRoot(id string) error { return u.s.DisableRoot(id) }
