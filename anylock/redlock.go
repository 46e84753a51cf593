package anylock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock"
	"github.com/holdfast-go/holdfast/redlock"
)

// minorityTimeout bounds the wait for the other nodes once a majority is open.
const minorityTimeout = time.Second

// openRedlock opens a majority of the Redis servers of a URL:
//
//	redlock://[user[:password]@]host[:port],host[:port],host[:port][/database][?option=value&...]
//
// Everything but the hosts is the same for all, and as redislock.Open takes it;
// restart_guard is on unless it is given. A server that cannot be reached is
// opened later, as long as a majority can be reached. The order of the hosts does
// not matter.
func openRedlock(ctx context.Context, url string) (driver.Driver, error) {
	urls, err := nodeURLs(url)
	if err != nil {
		return nil, fmt.Errorf("redlock: %w", err)
	}
	nodes, err := openNodes(ctx, urls)
	if err != nil {
		return nil, fmt.Errorf("redlock: %w", err)
	}
	d, err := redlock.New(nodes, nil)
	if err != nil {
		for _, n := range nodes {
			_ = n.Close()
		}
		return nil, err
	}
	return d, nil
}

// nodeURLs returns the URL of each node, sorted, so that all clients have the
// nodes in one order.
func nodeURLs(url string) ([]string, error) {
	scheme, after, ok := strings.Cut(url, "://")
	if !ok {
		return nil, errors.New("the URL is not of the form redlock://user:password@host:port,host:port,host:port/database?option=value")
	}
	scheme = strings.Replace(scheme, "redlock", "redis", 1)
	end := strings.IndexAny(after, "/?#")
	if end < 0 {
		end = len(after)
	}
	hosts, after := after[:end], after[end:]
	user := ""
	if at := strings.LastIndexByte(hosts, '@'); at >= 0 {
		user, hosts = hosts[:at+1], hosts[at+1:]
	}
	path, query, _ := strings.Cut(after, "?")
	if !strings.Contains("&"+query, "&restart_guard=") {
		query = strings.TrimPrefix(query+"&restart_guard=on", "&")
	}
	all := strings.Split(hosts, ",")
	slices.Sort(all)
	seen := make(map[string]bool)
	if len(all) < 3 || len(all)%2 == 0 {
		return nil, fmt.Errorf("the number of the URL's hosts is %d: write an odd number of them, at least 3", len(all))
	}
	urls := make([]string, len(all))
	for i, host := range all {
		switch {
		case host == "":
			return nil, errors.New("the URL has an empty host")
		case seen[strings.TrimSuffix(host, ":6379")]:
			return nil, errors.New("the URL names a host twice; the nodes have to be servers of their own")
		}
		seen[strings.TrimSuffix(host, ":6379")] = true
		urls[i] = scheme + "://" + user + host + path + "?" + query
	}
	return urls, nil
}

// openNodes opens the nodes all at once. Those that cannot be reached are left
// for later when a majority can.
func openNodes(ctx context.Context, urls []string) ([]driver.Driver, error) {
	type opened struct {
		at  int
		d   *redislock.Driver
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan opened, len(urls))
	for i, url := range urls {
		go func() {
			d, err := redislock.Open(ctx, url)
			answers <- opened{i, d, err}
		}()
	}
	nodes := make([]driver.Driver, len(urls))
	count := 0
	var failed, fatal []error
	var deadline <-chan time.Time
	for left := len(urls); left > 0; {
		select {
		case a := <-answers:
			left--
			if a.err == nil {
				nodes[a.at] = a.d
				if count++; count == len(urls)/2+1 {
					timer := time.NewTimer(minorityTimeout)
					defer timer.Stop()
					deadline = timer.C
				}
				continue
			}
			err := fmt.Errorf("node %d: %w", a.at+1, a.err)
			if _, classed := errors.AsType[*driver.Error](a.err); !classed || driver.ClassOf(a.err) == driver.Refused {
				fatal = append(fatal, err)
				cancel()
			}
			failed = append(failed, err)
		case <-deadline:
			deadline = nil
			cancel() // the rest are opened later
		}
	}
	if err := errors.Join(fatal...); err != nil || count <= len(urls)/2 {
		for _, n := range nodes {
			if n != nil {
				_ = n.Close()
			}
		}
		if err != nil {
			return nil, fatal[0] // the others are usually the same
		}
		return nil, driver.Errorf(driver.Unavailable, "%d of %d nodes can be reached: %w", count, len(urls), errors.Join(failed...))
	}
	for i, n := range nodes {
		if n == nil {
			nodes[i] = redlock.Later(new(redislock.Driver).Traits(), func(ctx context.Context) (driver.Driver, error) {
				d, err := redislock.Open(ctx, urls[i])
				if err != nil {
					return nil, err
				}
				return d, nil
			})
		}
	}
	return nodes, nil
}
