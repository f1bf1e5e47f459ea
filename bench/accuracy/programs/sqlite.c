/* Queries in memory, turn after turn of the very same work: sqlite MILLISECONDS-OF-CPU. With 0 it is one turn. No system calls to speak of, so
 * that instructions tell where its time goes. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <sqlite3-binding.h>

enum { ROWS = 20000 };

static void query(sqlite3 *db, const char *sql)
{
	char *error = 0;
	if (sqlite3_exec(db, sql, 0, 0, &error)) {
		fprintf(stderr, "sqlite: %s: %s\n", sql, error);
		exit(1);
	}
}

static void turn(sqlite3 *db)
{
	char fill[400];
	query(db, "create table item(id integer primary key, kind int, name text); create table kind(kind int, mean real);");
	snprintf(fill, sizeof fill, "with recursive n(i) as (select 1 union all select i + 1 from n where i < %d) "
		"insert into item select i, (i * 7919) %% 1009, printf('name-%%07d', (i * 104729) %% 1000003) from n;", ROWS);
	query(db, fill);
	query(db, "insert into kind select kind, avg(id) from item group by kind; create index by_kind on item(kind);");
	query(db, "select name from item order by name;");
	query(db, "select kind.kind, count(*), sum(length(item.name)), max(item.name) from kind join item on item.kind = kind.kind "
		"where item.name like '%7%3%' group by kind.kind order by 3 desc;");
	query(db, "select kind, group_concat(substr(name, 6), ',') from item group by kind; drop table item; drop table kind;");
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	/* Memory stays, or each turn would fault it in anew. */
	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	sqlite3 *db;
	if (sqlite3_open(":memory:", &db))
		return 1;
	query(db, "pragma temp_store = memory; pragma journal_mode = off;");
	double until = 1e-3 * atof(argv[1]);
	do
		turn(db);
	while ((double)clock() / CLOCKS_PER_SEC < until);
	return sqlite3_close(db);
}
