//go:build tinygo

package provisioning

import "github.com/hubline-iot/hubline/transport"

// Boards do not link what a TPM needs: MQTT, their protocol, has no attestation for it.

func (id *Identity) checkTPM() error               { return nil }
func (id *Identity) useTPM()                       {}
func (id *Identity) checkTPMCarrier(Carrier) error { return nil }
func (id *Identity) lacksCalls() string            { return "" }

func (r *registration) openTPM(*Login) (bool, error)                 { return false, nil }
func (r *registration) activateAssigned(*Answer, *reading) error     { return nil }
func (r *registration) challengeAgain(failure *transport.Error) bool { return false }
