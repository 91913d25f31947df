// Package fileupload uploads files of a device to the storage of its hub, over HTTPS, whatever
// carries its telemetry.
//
//	u, err := fileupload.New(creds, nil)
//	...
//	defer u.Close()
//	result, err := u.Upload(ctx, "logs/today.txt", file, -1)
//
// A program that does not import the package links nothing of it.
//
// # How a file travels
//
// The hub gives the device an upload URI, valid for an hour as a rule; the file goes to storage, in
// one request if it is not larger than a block, else in blocks, which a commit makes into a file in
// one step; the hub is told how it went. Each block carries its MD5, which storage checks; the
// file's own is kept with it.
//
// The reader is read once, so it may be a pipe, and its size need not be known. Of a file there are
// Parallel blocks in memory, 2 MiB with the default options until 10,000 blocks have gone.
//
// # Losses
//
// Each request is retried on its own: what was cut off is sent again, and nothing else. Blocks that
// storage has stay there for a week, whatever happens to the connection, so an upload goes on after
// an outage where it was. With the default policy it waits for ever: bound it with the context, or
// with a policy.
//
// When the upload URI is about to run out, or storage does not take it any more, the hub is asked
// for another one for the same file, and the blocks sent under the first remain good. The time left
// is measured between the hub's own clock and the URI's expiry, so the device's clock does not
// matter. The place that the hub holds for the first URI becomes free when that expires. A new URI
// that storage refuses as well, before anything worked with it, is the end (Unauthorized). An
// upload does not outlive its process: what another one left unfinished is begun anew, and storage
// throws the old blocks away at the commit or after a week.
//
// When an upload fails or its context ends, the hub is told so, for NotifyTimeout at most. A hub
// that was not told counts the upload as running until its URI expires, and a device may have 10;
// more of them are refused with Quota and tried again at a slow pace. An answer of the hub with an
// upload URI that got lost costs such a place, too. When the file was stored and the hub had given
// up the upload meanwhile, another one is begun and ended for the same file, so that the hub learns
// of it.
//
// # Tokens, clock
//
// The requests to the hub carry a token, which is kept until 85 % of its life is over. One that the
// hub refuses is replaced, once: where it was made for an earlier request, where Credentials.Token
// gave it, or where the hub's answer tells (Date) that it was made by a clock that is ahead. What a
// hub's Date changes, and what it does not, is as in package transport/http: a clock that is late
// by more than TokenLife has to be set, and the upload waits for it (ClockUnset). A clock that is
// not set is replaced by the hub's, if TLS has verified the hub; for that give
// Options.Network.TLS.Time a time that is nearer, such as that of the build.
//
// # Errors
//
// Every error is an *transport.Error, whose Op is OpSend or OpDial and whose Proto is "http". For
// answers of hub and storage its Kind follows from their code, a *transport.StatusError that
// errors.As finds: Quota for too many uploads and for a quota used up; Throttled for 429 and for a
// storage account that is busy; Unavailable and Timeout for errors of the services; Unauthorized,
// Forbidden (also a device that is disabled), NotFound, TooLarge, Conflict and Invalid where they
// say so; Unsupported for a hub without storage; Network for a block that arrived damaged; Protocol
// for peers that speak something else. All that concerns network, TLS, certificates and proxies is
// as in package mqtt. Package errfilter says which of them are tried again. No error shows the
// upload URI's signature or a token.
//
// # Concurrency
//
// The methods of an Uploader may be called by many goroutines at a time; its uploads share
// connections and nothing else. Upload reads on its caller's goroutine and sends on Parallel
// others, which have ended when it returns. Two uploads of the same name at a time do not mix their
// blocks: the one that ends last is what remains, and the one that ends first can make the other
// fail with Conflict.
package fileupload
