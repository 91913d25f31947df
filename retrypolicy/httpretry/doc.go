// Package httpretry judges the answers of HTTP services for package retrypolicy: which status is
// worth a retry, and how long the service asks to wait.
//
//	r := retrypolicy.Retrier{Policy: policy, Classify: httpretry.Classify}
//
// The operation returns an answer that is a failure as an error that knows its status
// ([StatusError]).
package httpretry
