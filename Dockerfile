# An official PostgreSQL image with pg_lookahead built and loaded.
#
#     docker build --build-arg PG_MAJOR=18 -t postgres-lookahead .
#
# PG_MAJOR: 17, 18 or, as long as it is not released, 19rc1 and the like.
ARG PG_MAJOR=18
FROM postgres:${PG_MAJOR} AS build
# The base image sets PG_MAJOR to the number alone and names a repository that has the headers.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev make "postgresql-server-dev-${PG_MAJOR}" \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /usr/src/pg_lookahead
COPY Makefile VERSION pg_lookahead.control ./
COPY sql sql
COPY src src
RUN make with_llvm=no all && make with_llvm=no install DESTDIR=/out

FROM postgres:${PG_MAJOR}
COPY --from=build /out/ /
CMD ["postgres", "-c", "shared_preload_libraries=pg_lookahead"]
