// Package provisioning asks the Device Provisioning Service (DPS) which hub a device belongs to.
//
//	id := &provisioning.Identity{IDScope: "0ne00ABCDEF", RegistrationID: "device-1", Sign: sign}
//	client, err := provisioning.New(id, dpshttp.New(nil), nil)
//	assignment, err := client.Register(ctx)
//	d, err := device.New(client.Credentials(assignment), mqtt.New(nil), nil)
//
// The protocol is a value, as it is for package device: a Carrier from package dpshttp, dpsmqtt or
// dpsamqp, or from dpsengine on boards. The package itself is for boards, too: it links neither TLS
// nor the standard library's JSON.
//
// # Identity
//
// A device proves its identity in one of these ways.
//
//   - The key of an individual enrollment: transport.SharedKey makes Identity.Sign from it.
//   - A key derived from the key of an enrollment group: DeriveKey derives it in the factory, and
//     the device has the result. GroupKey derives it on the device.
//   - A certificate, in the options of the carrier, with all intermediate certificates: an
//     enrollment group needs them. Sign is nil then.
//   - The endorsement key of a TPM: Identity.TPM takes the three steps that the module
//     provisioning/dpstpm, or another one, makes in the TPM. Over HTTPS and AMQP only.
//
// An enrollment has two keys. A device that has both (SecondSign) tries the second one when the
// service refuses the first.
//
// # Calls
//
// Client.Call makes other requests to the service, over HTTPS and MQTT: package update/dpsupdate
// asks for software updates with it. Client.Before lets a device ask ahead of its first
// registration, on the same connection.
//
// # Failures
//
// Register repeats the failures that package errfilter calls retryable, as long as ctx lasts and
// the policy allows it. A delay that the service asks for is a minimum, up to an hour. After a
// failure of a poll, Register goes on with the same operation. If the service does not know the
// operation, Register starts again. A conflict is repeated once.
//
// The error of Register is a *transport.Error. It has these Kinds:
//
//   - Invalid for an Identity or options that cannot work, before anything is sent, for a request
//     that the service calls wrong, and for a policy, Rand or clock that panics;
//   - TooLarge for a payload that is too large, before anything is sent;
//   - Unauthorized when the service refuses every key, the certificate or the TPM, or when the TPM
//     does not decrypt the service's key;
//   - NotFound when the enrollment or the ID scope does not exist;
//   - Forbidden for a disabled enrollment;
//   - RetryExpired when the policy ends the retries;
//   - Cancelled when ctx ends, with ctx's error and the latest failure in its text;
//   - the Kinds of the carrier, and Unsupported for an assignment to a kind of hub that the module
//     does not speak with.
//
// A refusal by the service is a *transport.StatusError in the chain, with the service's code.
package provisioning
