// Package dpscert is for certificates that the provisioning service or the hub issues: signing
// requests for registrations, client certificates from issued chains, and their renewal. Private
// keys stay where they are: any crypto.Signer will do.
//
//	csr, err := dpscert.Request("thermometer-1", key)
//	client, err := provisioning.New(id, carrier, &provisioning.Options{CSR: csr})
//	assignment, err := client.Register(ctx)
//	network.Certificate = dpscert.Certificate(assignment.Chain, key)
//
// # Renewal
//
// A Renewer renews the certificate with which a device proves its identity to its hub.
//
//	renewer, err := dpscert.New(key, &dpscert.Options{
//		Registrar: registrar,
//		Store:     dpscert.File("/var/lib/thermometer/certificate"),
//	})
//	network.Certificate = renewer.Certificate
//	t := renewer.Around(mqtt.New(&mqtt.Options{Network: network}))
//	client, err := device.New(creds, t, nil)
//
// It works around any transport, with the same rules for MQTT, AMQP and HTTPS. The transport
// carries the requests to the hub; package provisioning those to the provisioning service.
//
// # When
//
// A certificate is renewed when two thirds of its life have passed, minus up to 5 % of the life at
// random, so that a fleet does not renew as one. A device that was switched off at that time renews
// it soon after its next connect, after a random wait of up to an hour. As long as the clock is not
// set, nothing is renewed: it shows a time before the release of this module or before
// Credentials.Earliest. A clock that is behind delays the renewal.
//
// The device uses its certificate until it ends. Renewal runs while the device is connected. If the
// certificate ended while it was not, the next Dial asks the provisioning service first.
//
// # How
//
// Over MQTT the hub is asked, unless Options.ServiceOnly is set: some hubs issue certificates. If
// it cannot do that, or after three failed requests, the provisioning service is asked, by another
// registration with a signing request, over any carrier. Over AMQP and HTTPS the service is asked
// at once. It may assign another hub in its answer: package dpstransport follows. An enrollment
// that resets the twin at each registration does so at a renewal, too.
//
// A failed request goes the way of all failures: its Kind says whether it is repeated, and
// Options.Policy when, not before the service's retry-after. A failure that is not worth a retry
// ends the renewal for a day (Options.TryAgainAfter).
//
// A new chain is checked (Check), stored, and then replaces the old one.
//
// # Connections
//
// The next connection uses the newest certificate. A running connection is replaced as package
// device replaces one whose token expires (device.Options.RenewAt): when nothing is in flight, and
// with Reason TokenRenewal. No message is lost or repeated. If that does not come to pass, the
// connection ends a minute before its certificate does, and is retried like a lost one.
//
// If the hub refuses the newest certificate and the previous one has not ended, that is used again,
// and another one is requested an hour later. If the hub refuses that too, the provisioning service
// is asked, once. All this is one attempt to connect. Then the refusal is passed on.
//
// # Keys
//
// Options.NewKey makes a new key for each renewal. The Store contains only its name, from which
// Options.OpenKey opens it after a restart.
package dpscert
