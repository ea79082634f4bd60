// Package lru keeps the most recently used values and forgets the rest.
package lru

import "sync"

type entry[K comparable, V any] struct {
	key        K
	value      V
	prev, next *entry[K, V]
}

// Cache holds at most a fixed number of values. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	mu      sync.Mutex
	limit   int
	entries map[K]*entry[K, V]
	head    *entry[K, V]
	tail    *entry[K, V]
	hits    int
	misses  int
}

// New returns an empty cache for at most limit values; limit must be positive.
func New[K comparable, V any](limit int) *Cache[K, V] {
	if limit <= 0 {
		panic("lru: limit must be positive")
	}
	return &Cache[K, V]{limit: limit, entries: make(map[K]*entry[K, V], limit)}
}

// Get returns the value of key and makes it the most recently used one.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	if !ok {
		c.misses++
		return value, false
	}
	c.hits++
	c.unlink(e)
	c.pushFront(e)
	return e.value, true
}

// Put stores a value; the least recently used one goes when the cache is full.
func (c *Cache[K, V]) Put(key K, value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[key]; ok {
		e.value = value
		c.unlink(e)
		c.pushFront(e)
		return
	}
	if len(c.entries) >= c.limit {
		oldest := c.tail
		c.unlink(oldest)
		delete(c.entries, oldest.key)
	}
	e := &entry[K, V]{key: key, value: value}
	c.entries[key] = e
	c.pushFront(e)
}

func (c *Cache[K, V]) HitRate() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	total := c.hits + c.misses
	return float64(c.hits) / float64(total)
}

func (c *Cache[K, V]) unlink(e *entry[K, V]) {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		c.head = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		c.tail = e.prev
	}
	e.prev, e.next = nil, nil
}

func (c *Cache[K, V]) pushFront(e *entry[K, V]) {
	e.next = c.head
	if c.head != nil {
		c.head.prev = e
	}
	c.head = e
	if c.tail == nil {
		c.tail = e
	}
}
