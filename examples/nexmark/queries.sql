-- The queries of Nexmark over all events, for DuckDB: what the streams of `queries.py` must come to in the end.
-- Tables: persons, auctions, bids, side. Times are whole milliseconds, windows are [window_start, window_end).

-- q0
SELECT auction, bidder, price, extra, event_time FROM bids

-- q1
SELECT auction, bidder, extra, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, event_time FROM bids

-- q2
SELECT auction, price, event_time FROM bids WHERE auction % 123 = 0

-- q3
SELECT p.name, p.city, p.state, a.id
FROM auctions a JOIN persons p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')

-- q4
WITH winning AS (
    SELECT a.id, a.category, max(b.price) AS highest
    FROM auctions a JOIN bids b ON a.id = b.auction AND b.event_time BETWEEN a.event_time AND a.expires
    GROUP BY ALL
)
SELECT category, avg(highest) AS average FROM winning GROUP BY category

-- q5
WITH each_window AS (SELECT unnest(range((SELECT (min(event_time) // 2000 - 5) * 2000 FROM bids), (SELECT max(event_time) + 1 FROM bids), 2000)) AS window_start),
counted AS (
    SELECT auction, window_start, window_start + 10000 AS window_end, count(*) AS num
    FROM bids JOIN each_window ON event_time >= window_start AND event_time < window_start + 10000
    GROUP BY ALL
)
SELECT auction, num, window_start, window_end FROM counted
QUALIFY num = max(num) OVER (PARTITION BY window_start)

-- q6
WITH winners AS (
    SELECT a.seller, a.id, a.expires, b.price
    FROM auctions a JOIN bids b ON a.id = b.auction AND b.event_time BETWEEN a.event_time AND a.expires
    QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.event_time) = 1
)
SELECT seller, id, expires AS event_time,
    avg(price) OVER (PARTITION BY seller ORDER BY expires ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS average
FROM winners

-- q7
SELECT auction, bidder, price, extra, event_time AS at FROM bids
QUALIFY price = max(price) OVER (PARTITION BY event_time // 10000)

-- q8
SELECT DISTINCT p.id, p.name, p.event_time // 10000 * 10000 AS window_start
FROM persons p JOIN auctions a ON p.id = a.seller AND p.event_time // 10000 = a.event_time // 10000

-- q9
SELECT a.* EXCLUDE (event_time, ingestion_time), a.event_time AS opened,
    b.bidder, b.price, b.channel, b.url, b.extra, b.event_time AS at
FROM auctions a JOIN bids b ON a.id = b.auction AND b.event_time BETWEEN a.event_time AND a.expires
QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.event_time) = 1

-- q10
SELECT auction, bidder, price, extra, event_time,
    strftime(make_timestamp(event_time * 1000), '%Y-%m-%d') AS day,
    strftime(make_timestamp(event_time * 1000), '%H:%M') AS minute
FROM bids

-- q11
WITH marked AS (
    SELECT *, event_time - lag(event_time) OVER (PARTITION BY bidder ORDER BY event_time) > 10000 AS begins FROM bids
), numbered AS (
    SELECT *, count(*) FILTER (begins) OVER (PARTITION BY bidder ORDER BY event_time) AS session FROM marked
)
SELECT bidder, count(*) AS bids, min(event_time) AS window_start, max(event_time) + 10000 AS window_end
FROM numbered GROUP BY bidder, session

-- q12
SELECT bidder, count(*) AS bids, ingestion_time // 10000 * 10000 AS window_start FROM bids GROUP BY ALL

-- q13
SELECT b.auction, b.bidder, b.price, s.value, b.event_time
FROM bids b JOIN side s ON b.auction % 10000 = s.key

-- q14
WITH timed AS (SELECT *, hour(make_timestamp(event_time * 1000)) AS hour FROM bids)
SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, extra, event_time,
    CASE WHEN hour BETWEEN 8 AND 18 THEN 'dayTime'
         WHEN hour <= 6 OR hour >= 20 THEN 'nightTime'
         ELSE 'otherTime' END AS bid_time_type,
    length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM timed WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000

-- q15
SELECT strftime(make_timestamp(event_time * 1000), '%Y-%m-%d') AS day,
    count(*) AS total_bids,
    count(*) FILTER (price < 10000) AS rank1_bids,
    count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (price >= 1000000) AS rank3_bids,
    count(DISTINCT bidder) AS total_bidders,
    count(DISTINCT bidder) FILTER (price < 10000) AS rank1_bidders,
    count(DISTINCT bidder) FILTER (price >= 10000 AND price < 1000000) AS rank2_bidders,
    count(DISTINCT bidder) FILTER (price >= 1000000) AS rank3_bidders,
    count(DISTINCT auction) AS total_auctions,
    count(DISTINCT auction) FILTER (price < 10000) AS rank1_auctions,
    count(DISTINCT auction) FILTER (price >= 10000 AND price < 1000000) AS rank2_auctions,
    count(DISTINCT auction) FILTER (price >= 1000000) AS rank3_auctions
FROM bids GROUP BY day

-- q16
SELECT channel, strftime(make_timestamp(event_time * 1000), '%Y-%m-%d') AS day,
    max(strftime(make_timestamp(event_time * 1000), '%H:%M')) AS minute,
    count(*) AS total_bids,
    count(*) FILTER (price < 10000) AS rank1_bids,
    count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (price >= 1000000) AS rank3_bids,
    count(DISTINCT bidder) AS total_bidders,
    count(DISTINCT bidder) FILTER (price < 10000) AS rank1_bidders,
    count(DISTINCT bidder) FILTER (price >= 10000 AND price < 1000000) AS rank2_bidders,
    count(DISTINCT bidder) FILTER (price >= 1000000) AS rank3_bidders,
    count(DISTINCT auction) AS total_auctions,
    count(DISTINCT auction) FILTER (price < 10000) AS rank1_auctions,
    count(DISTINCT auction) FILTER (price >= 10000 AND price < 1000000) AS rank2_auctions,
    count(DISTINCT auction) FILTER (price >= 1000000) AS rank3_auctions
FROM bids GROUP BY channel, day

-- q17
SELECT auction, strftime(make_timestamp(event_time * 1000), '%Y-%m-%d') AS day,
    count(*) AS total_bids,
    count(*) FILTER (price < 10000) AS rank1_bids,
    count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (price >= 1000000) AS rank3_bids,
    min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price,
    CAST(sum(price) AS BIGINT) AS sum_price
FROM bids GROUP BY auction, day

-- q18
SELECT bidder, auction, price, channel, url, extra, event_time AS at FROM bids
QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY event_time DESC, price DESC) = 1

-- q19
SELECT auction, bidder, price, channel, url, extra, event_time AS at,
    row_number() OVER (PARTITION BY auction ORDER BY price DESC, event_time DESC) AS rank
FROM bids QUALIFY rank <= 10

-- q20
SELECT b.* EXCLUDE (event_time, ingestion_time), b.event_time AS at,
    a.item, a.description, a.initial_bid, a.reserve, a.expires, a.seller, a.category, a.event_time AS opened
FROM bids b JOIN auctions a ON b.auction = a.id WHERE a.category = 10

-- q21
WITH found AS (
    SELECT *, regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) AS in_url, regexp_matches(url, '(&|^)channel_id=') AS has_id FROM bids
)
SELECT auction, bidder, price, channel, event_time,
    CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
         ELSE in_url END AS channel_id
FROM found WHERE has_id OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')

-- q22
SELECT auction, bidder, price, channel, event_time,
    split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
FROM bids

-- q23
SELECT b.* EXCLUDE (event_time, ingestion_time), b.event_time AS at,
    p.name, p.email, p.credit_card, p.city, p.state,
    a.id, a.item, a.description, a.initial_bid, a.reserve, a.expires, a.category, a.event_time AS opened
FROM bids b JOIN persons p ON p.id = b.bidder JOIN auctions a ON a.seller = b.bidder
