/* A ring buffer of bytes for one reader and one writer in the same thread. */

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct ring {
    unsigned char *bytes;
    size_t capacity;
    size_t head; /* where the next byte is read */
    size_t used;
};

bool ring_init(struct ring *ring, size_t capacity)
{
    ring->bytes = malloc(capacity);
    ring->capacity = capacity;
    ring->head = 0;
    ring->used = 0;
    return ring->bytes != NULL;
}

void ring_free(struct ring *ring)
{
    free(ring->bytes);
    memset(ring, 0, sizeof *ring);
}

/* Writes as many of the n bytes as fit and returns how many that were. */
size_t ring_write(struct ring *ring, const void *source, size_t n)
{
    const unsigned char *from = source;
    size_t room = ring->capacity - ring->used;
    if (n > room)
        n = room;
    size_t tail = (ring->head + ring->used) % ring->capacity;
    size_t first = ring->capacity - tail;
    if (first > n)
        first = n;
    memcpy(ring->bytes + tail, from, first);
    memcpy(ring->bytes, from + first, n - first);
    ring->used += n;
    return n;
}

/* Reads at most n bytes and returns how many that were. */
size_t ring_read(struct ring *ring, void *target, size_t n)
{
    unsigned char *to = target;
    if (n > ring->used)
        n = ring->used;
    size_t first = ring->capacity - ring->head;
    if (first > n)
        first = n;
    memcpy(to, ring->bytes + ring->head, first);
    memcpy(to + first, ring->bytes, n - first);
    ring->head = (ring->head + n) % ring->capacity;
    ring->used -= n;
    return n;
}

/* Finds a byte and returns its distance from the head, or -1. */
long ring_find(const struct ring *ring, unsigned char wanted)
{
    for (size_t i = 0; i < ring->used; i++) {
        if (ring->bytes[(ring->head + i) % ring->capacity] == wanted)
            return (long)i;
    }
    return -1;
}
