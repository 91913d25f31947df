// Package dpsupdate asks the provisioning service for software updates and reports how they went:
// the agent.Service for an update service that is linked to it.
//
//	registrar, err := provisioning.New(id, dpsmqtt.New(nil), nil)
//	service, err := dpsupdate.New(registrar, nil)
//	a, err := agent.New(&agent.Options{Service: service, ...})
//	registrar.Before(a.Onboard) // asks ahead of the first registration
//	assignment, err := registrar.Register(ctx)
//	err = a.Run(ctx)
//
// # Carriers
//
// Each Check and each Report is a call of the provisioning.Client, over HTTPS or MQTT, with a key
// or a certificate. Over AMQP, and for devices with a TPM, the error has Kind Unsupported. A device
// without a hub needs no registration.
//
// # Failures
//
// An error is a *transport.Error, with a *transport.StatusError in its chain if the service has
// answered: Name is the update service's code. Nothing is repeated, with one exception: if the
// service calls an etag outdated, Check asks again without it. An error that package errfilter
// calls retryable may be repeated, after its RetryAfter.
//
// A provisioning service without an update service is no failure of a Check: there is no offer. For
// a Report it is one, of Kind NotFound.
//
// Sources: the notes about software updates of Microsoft's C SDK (2.0.0-preview.2), and the
// specification of the service's API, version 2026-11-02-preview.
package dpsupdate
