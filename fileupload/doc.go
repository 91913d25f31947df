// Package fileupload uploads files of a device to the storage of its hub, over HTTPS, independent
// of the transport for telemetry.
//
//	u, err := fileupload.New(creds, nil)
//	...
//	defer u.Close()
//	result, err := u.Upload(ctx, "logs/today.txt", file, -1)
//
// A program that does not import the package links none of it.
//
// # Sequence of an upload
//
// The hub gives the device an upload URI, usually valid for an hour. The device sends the file to
// storage: in one request if it fits into one block, else in blocks, which a commit turns into a
// file atomically. Then the device reports the outcome to the hub. Each block carries its MD5,
// which storage checks; storage keeps the MD5 of the file with the file.
//
// The reader is read once, so it may be a pipe, and its size need not be known. Memory holds
// Parallel blocks of a file: 2 MiB with the default options for the first 10,000 blocks.
//
// # Losses
//
// Each request is retried on its own: only the interrupted request is sent again. Storage keeps
// uncommitted blocks for a week, so an upload continues after an outage with the next block. With
// the default policy it retries endlessly: bound it with the context or with a policy.
//
// When the upload URI is about to expire, or storage refuses it, the device requests another one
// for the same file. Blocks sent under the first URI remain valid. The remaining lifetime is the
// URI's expiry minus the hub's own time, so the device's clock does not matter. The hub counts the
// first URI as a running upload until it expires. If storage also refuses a new URI before any
// request with it succeeded, the upload fails (Unauthorized). An upload cannot be resumed by
// another process: it starts again from the beginning, and storage discards the old blocks at the
// commit or after a week.
//
// When an upload fails or its context ends, the device notifies the hub, within NotifyTimeout.
// Without that notification the hub counts the upload as running until its URI expires. A device
// may have 10 running uploads; more are refused with Quota and retried at a slow pace. A lost
// answer with an upload URI counts as a running upload, too. If the hub has given up the upload of
// a file that is stored, the device starts and ends another upload for the same file, so that the
// hub is notified.
//
// # Tokens, clock
//
// Requests to the hub carry a token, which is reused until 85 % of its lifetime has passed. A
// refused token is replaced once, if it was made for an earlier request, if Credentials.Token
// supplied it, or if the hub's answer (Date) shows that the clock that made it is ahead. The effect
// of a hub's Date is as in package transport/http: a clock that is behind by more than TokenLife
// must be set, and the upload waits for that (ClockUnset). A clock that is not set is replaced by
// the hub's, if TLS has verified the hub; for that, give Options.Network.TLS.Time a closer time,
// such as the build time.
//
// # Errors
//
// Every error is an *transport.Error with Op OpSend or OpDial and Proto "http". For answers of hub
// and storage, the Kind follows from their code, in a *transport.StatusError that errors.As finds:
//
//   - Quota: too many uploads, or a quota is used up.
//   - Throttled: 429, or a busy storage account.
//   - Unavailable and Timeout: errors of the services.
//   - Unauthorized, Forbidden (also for a disabled device), NotFound, TooLarge, Conflict and
//     Invalid: as the services report.
//   - Unsupported: the hub has no storage.
//   - Network: data arrived damaged.
//   - Protocol: the peer does not speak the protocol, or data still arrived damaged after three
//     retries in a row.
//
// Errors of network, TLS, certificates and proxies are as in package mqtt. Package errfilter
// defines which errors are retried. No error shows the upload URI's signature or a token.
//
// # Concurrency
//
// The methods of an Uploader are safe for concurrent use; its uploads share only connections.
// Upload reads on its caller's goroutine and sends on Parallel others, which have ended when it
// returns. Concurrent uploads of the same name do not mix their blocks: the file of the last one to
// end remains, and the first one to end can make the other fail with Conflict.
package fileupload
