// Package httpretry repeats the requests of an http.Client under a policy of package retrypolicy:
//
//	client := &http.Client{Transport: &httpretry.Transport{Policy: policy}}
//
// For a loop of your own it judges answers: whether to retry a status ([Status]), and how long the
// service asks to wait ([RetryAfterHeaders], [ParseRateLimit]). The operation then returns a failed
// answer as an error that knows its status ([StatusError], such as a [ResponseError]):
//
//	r := retrypolicy.Retrier{Policy: policy, Classify: httpretry.Classify}
package httpretry
